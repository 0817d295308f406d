# Installs MoreGPU for this user alone, without administrator rights:
#
#   powershell -ExecutionPolicy Bypass -File install.ps1
#   Get-Content invite.txt | powershell -ExecutionPolicy Bypass -File install.ps1
#
# What is downloaded is checked against the hash below before anything of it is run.
param([switch]$Uninstall)
$ErrorActionPreference = 'Stop'
Set-StrictMode -Version Latest

$Version = '@VERSION@'
$File = '@FILE@'
$Sha256 = '@SHA256@'
$From = if ($env:MOREGPU_FROM) { $env:MOREGPU_FROM } else { '@FROM@' }
$Place = Join-Path $env:LOCALAPPDATA 'Programs\MoreGPU'
$Tray = Join-Path $Place 'moregpu-tray.exe'

if ($Uninstall) {
    $Remover = Join-Path $Place 'unins000.exe'
    if (-not (Test-Path $Remover)) { Write-Error 'MoreGPU is not installed here.' }
    Start-Process -Wait -FilePath $Remover -ArgumentList '/VERYSILENT'
    Write-Output 'MoreGPU is gone.'
    exit 0
}
if (-not $Sha256) { Write-Error 'This copy of the script has no hash in it; take the one from the release.' }

if (-not $From) { Write-Error 'Say where the release is: set MOREGPU_FROM to https://… or to a folder.' }
$Work = New-Item -ItemType Directory -Path (Join-Path ([IO.Path]::GetTempPath()) ([Guid]::NewGuid()))
try {
    $Setup = Join-Path $Work $File
    if ($From -match '^https://') {
        [Net.ServicePointManager]::SecurityProtocol = [Net.SecurityProtocolType]::Tls12
        Invoke-WebRequest -UseBasicParsing -Uri "$From/$File" -OutFile $Setup
    } else {
        Copy-Item (Join-Path $From $File) $Setup
    }
    $Found = (Get-FileHash -Algorithm SHA256 -Path $Setup).Hash
    if ($Found -ne $Sha256) { Write-Error "The download is not what this script was made for (sha256 $Found); nothing was installed." }
    Start-Process -Wait -FilePath $Setup -ArgumentList '/VERYSILENT', '/SUPPRESSMSGBOXES', '/NORESTART'
} finally {
    Remove-Item -Recurse -Force $Work
}

# The invite comes over standard input alone: an argument could be read by other users of this machine.
$Invite = @($input) -join "`n"
if ($Invite.Trim()) { $Invite | & $Tray join --yes --exit }
Start-Process -FilePath $Tray
Write-Output "MoreGPU $Version is installed and runs; look for its ring beside the clock."
